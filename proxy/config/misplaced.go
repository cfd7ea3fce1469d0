package config

import (
	"fmt"
	"reflect"

	"github.com/penstock/penstock/proxy/internal/nearest"
	"go.yaml.in/yaml/v4"
)

// A guess is the value of a misspelled key and the key that was probably meant.
type guess struct {
	field *field
	value *yaml.Node
}

// unknown reports an unknown key with a suggestion. If the suggestion is a key of the same
// group, unknown returns it. It may also be a key of a group within.
func (d *decoder) unknown(o *object, key string, at place) *field {
	if d.full() {
		d.dropped++
		return nil
	}
	meant := closest(key, o.keys())
	fix := "leave it out, or write " + enumeration(o.keys(), "or")
	if meant != "" {
		fix = didYouMean(meant)
	}
	for _, f := range o.fields {
		if f.obj == nil || f.obj.byKey[key] == nil || meant != "" && nearest.Distance(key, meant) == 1 {
			continue
		}
		fix, meant = fmt.Sprintf("write %s: {%s: …}", f.key, key), ""
		if f.list {
			fix = fmt.Sprintf("write %s: [{%s: …}]", f.key, key)
		}
		break
	}
	d.complainAt(at, fix, "unknown key %q", key)
	return o.byKey[meant]
}

// try reads the value of a misspelled key, so that errors that follow from it are found and
// the key is not reported as missing. The value must be valid: an invalid one may have been
// meant for something else.
func (d *decoder) try(f *field, v reflect.Value, n *yaml.Node) bool {
	before, dropped := reflect.New(v.Type()).Elem(), d.dropped
	before.Set(v)
	d.trying = true
	d.field(f, v, n)
	d.trying = false
	ok := d.dropped == dropped
	d.dropped = dropped
	if !ok {
		v.Set(before)
		delete(d.places, v.Addr().Interface())
		d.markUndecoded(v)
	}
	return ok
}
