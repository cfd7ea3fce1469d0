package admin_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/penstock/penstock/proxy/admin"
)

// TestListsAreNeverNull: no answer has a null, neither an empty one nor one whose pointers and lists have an element
// each, and the answers themselves are left as they are.
func TestListsAreNeverNull(t *testing.T) {
	lists := 0
	for _, answer := range admin.EachAnswer() {
		for _, full := range []bool{false, true} {
			v := reflect.New(reflect.TypeOf(answer)).Elem()
			before := reflect.New(v.Type()).Elem()
			if full {
				populate(v)
				populate(before)
			}
			text := admin.Encode(v.Interface())
			if bytes.Contains(text, []byte("null")) {
				t.Errorf("%T: %s", answer, text)
			}
			if !reflect.DeepEqual(v.Interface(), before.Interface()) {
				t.Errorf("%T has changed", answer)
			}
			lists += strings.Count(string(text), "[]")
		}
	}
	if lists < 20 {
		t.Errorf("there were only %d empty lists", lists)
	}
}

// populate sets pointers and interfaces, and each list of structs to one element, whose other lists are nil.
func populate(v reflect.Value) {
	switch v.Kind() {
	case reflect.Interface:
		v.Set(reflect.ValueOf(struct {
			Found []string `json:"found"`
		}{}))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		populate(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				populate(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Struct {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			populate(v.Index(0))
		}
	}
}
