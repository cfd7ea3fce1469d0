package config

import (
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v4"
)

// A guess is a value that was written for another key than what was meant.
type guess struct {
	field *field
	value *yaml.Node
}

// unknown says what was meant by a key: one of the same group, which it returns, or one of a
// group within.
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
		if f.obj == nil || f.obj.byKey[key] == nil || meant != "" && distance(key, meant) == 1 {
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

// try reads the value of a key that was meant, so that what follows from it is found as well,
// and nobody complains that it is missing. It must be right as it is: what is wrong with it
// may be so because something else was meant.
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
		d.unread(v)
	}
	return ok
}
