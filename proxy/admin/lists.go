package admin

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// filled returns an answer whose lists and maps are empty where they were nil, so that none is null in JSON. The
// answer itself is not changed. Those that are left out when they are empty stay so.
func filled(v any) any {
	if v == nil {
		return nil
	}
	return fill(reflect.ValueOf(v)).Interface()
}

func fill(v reflect.Value) reflect.Value {
	if !mayLack(v.Type()) {
		return v
	}
	switch v.Kind() {
	case reflect.Slice:
		return fillList(v)
	case reflect.Map:
		return fillMap(v)
	case reflect.Struct:
		return fillStruct(v)
	}
	if v.IsNil() { // a pointer or an interface
		return v
	}
	to := reflect.New(v.Elem().Type())
	to.Elem().Set(fill(v.Elem()))
	if v.Kind() == reflect.Interface {
		return to.Elem()
	}
	return to
}

func fillList(v reflect.Value) reflect.Value {
	if !v.IsNil() && !mayLack(v.Type().Elem()) {
		return v
	}
	list := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	for i := range v.Len() {
		list.Index(i).Set(fill(v.Index(i)))
	}
	return list
}

func fillMap(v reflect.Value) reflect.Value {
	if !v.IsNil() && !mayLack(v.Type().Elem()) {
		return v
	}
	m := reflect.MakeMapWithSize(v.Type(), v.Len())
	for key, value := range v.Seq2() {
		m.SetMapIndex(key, fill(value))
	}
	return m
}

func fillStruct(v reflect.Value) reflect.Value {
	to := reflect.New(v.Type()).Elem()
	to.Set(v)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() || omitted(field) && v.Field(i).IsZero() {
			continue
		}
		to.Field(i).Set(fill(v.Field(i)))
	}
	return to
}

// omitted reports whether a field is left out when it is empty.
func omitted(f reflect.StructField) bool {
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return options == "omitempty" || options == "omitzero"
}

// lacking caches mayLack: bool by reflect.Type.
var lacking sync.Map

// mayLack reports whether a value of a type may be, or hold, a list or a map that is nil and not left out.
func mayLack(t reflect.Type) bool {
	if known, ok := lacking.Load(t); ok {
		return known.(bool)
	}
	lacks := findLack(t)
	lacking.Store(t, lacks)
	return lacks
}

func findLack(t reflect.Type) bool {
	if t.Implements(reflect.TypeFor[json.Marshaler]()) {
		return false
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Map, reflect.Interface:
		return true
	case reflect.Pointer:
		return mayLack(t.Elem())
	case reflect.Struct:
		for f := range t.Fields() {
			if f.IsExported() && (omitted(f) && holdsLack(f.Type) || !omitted(f) && mayLack(f.Type)) {
				return true
			}
		}
	}
	return false
}

// holdsLack is mayLack of a type whose own nil is left out.
func holdsLack(t reflect.Type) bool {
	if t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
		return mayLack(t.Elem())
	}
	return mayLack(t)
}
