package config

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// An object describes a struct that is written as a mapping.
type object struct {
	typ       reflect.Type
	pos       int // index of the field Pos, -1 if there is none
	fields    []*field
	byKey     map[string]*field
	shorthand *field        // field that a scalar sets instead of the mapping
	template  reflect.Value // with all defaults; sections that are on by default are missing
	sections  []*field      // the sections that are on by default
	size      int           // in bytes, with the sections that are on by default
}

// A field describes a key.
type field struct {
	index    int // in the struct
	order    int // among the keys
	key      string
	doc      string
	unit     string
	example  string
	without  string // how to write a section that does nothing
	dflt     string // as it is written; words for a list
	shown    string // text of the default as form shows it, if it differs from dflt
	hasDflt  bool
	enum     []string
	bounds   []bounds // one, or one per element
	required bool
	single   bool // a single value stands for a list with that value
	on       bool // the section is there unless it is off
	off      bool // a list that can be off, which means empty
	restart  bool // a change takes effect at a restart
	once     bool // used only while loading
	optional bool // a pointer: absent is nil
	list     bool
	fixed    int          // length of a list that is an array
	typ      reflect.Type // of the element of a list
	obj      *object      // format of a mapping
	form     *valueFormat // format of anything else
}

// maxKeys is the largest number of keys of an object; the tests fail at one more.
const maxKeys = 32

// bounds are the least and the largest value.
type bounds struct {
	lo, hi         float64
	loText, hiText string
}

// root describes Config.
var root = sync.OnceValue(func() *object { return describe(reflect.TypeFor[Config]()) })

// objects are the structs that Config consists of, including Config itself.
var objects = make(map[reflect.Type]*object)

func described(t reflect.Type) *object {
	root()
	return objects[t]
}

// describe reads the tags of a struct. No struct contains itself.
func describe(t reflect.Type) *object {
	if o := objects[t]; o != nil {
		return o
	}
	o := &object{typ: t, pos: -1, byKey: make(map[string]*field)}
	objects[t] = o
	for i := range t.NumField() {
		sf := t.Field(i)
		if sf.Type == reflect.TypeFor[Pos]() {
			o.pos = i
		}
		key, ok := sf.Tag.Lookup("key")
		if !ok {
			continue
		}
		f := describeField(sf, i, key)
		f.order = len(o.fields)
		o.fields = append(o.fields, f)
		o.byKey[key] = f
	}
	switch t {
	case reflect.TypeFor[Endpoint]():
		o.shorthand = o.byKey["address"]
	case reflect.TypeFor[Bandwidth]():
		o.shorthand = o.byKey["both"]
	case reflect.TypeFor[Compare]():
		o.shorthand = o.byKey["enabled"]
	case reflect.TypeFor[Mask]():
		o.shorthand = o.byKey["pattern"]
	}
	o.template = reflect.New(t).Elem()
	o.size = int(t.Size())
	for _, f := range o.fields {
		o.setDefault(f)
		if f.on {
			o.size += f.obj.size
		}
	}
	return o
}

func describeField(sf reflect.StructField, index int, key string) *field {
	tag := sf.Tag.Get
	f := &field{
		index: index, key: key, doc: tag("doc"), unit: tag("unit"), example: tag("eg"), without: tag("without"),
		required: tag("required") != "", single: tag("single") != "", on: tag("on") != "", once: tag("once") != "",
		off: tag("off") != "", restart: tag("restart") != "",
		typ: sf.Type,
	}
	f.dflt, f.hasDflt = sf.Tag.Lookup("default")
	if enum := tag("enum"); enum != "" {
		f.enum = strings.Fields(enum)
	}
	switch sf.Type.Kind() {
	case reflect.Slice:
		f.list, f.typ = true, sf.Type.Elem()
	case reflect.Array:
		f.list, f.fixed, f.typ = true, sf.Type.Len(), sf.Type.Elem()
	}
	if f.typ.Kind() == reflect.Pointer {
		f.optional, f.typ = !f.list, f.typ.Elem()
	}
	if f.form = formOf(f.typ, tag("type")); f.form == nil {
		f.obj = describe(f.typ)
	}
	for text := range strings.FieldsSeq(tag("range")) {
		f.bounds = append(f.bounds, f.parseBounds(text))
	}
	return f
}

// parseBounds reads LO..HI. The tests ensure that the tags are right.
func (f *field) parseBounds(text string) bounds {
	lo, hi, _ := strings.Cut(text, "..")
	b := bounds{loText: lo, hiText: hi}
	for text, to := range map[string]*float64{lo: &b.lo, hi: &b.hi} {
		v := reflect.New(f.typ).Elem()
		if c := f.form.set(nil, &field{}, v, text); c != nil {
			panic(fmt.Sprintf("config: range of %s: %s", f.key, c.message))
		}
		*to = number(v)
	}
	return b
}

// number returns a value that has bounds as a float64.
func number(v reflect.Value) float64 {
	if v.CanFloat() {
		return v.Float()
	}
	return float64(v.Int())
}

func (o *object) setDefault(f *field) {
	v := o.template.Field(f.index)
	switch {
	case f.on:
		o.sections = append(o.sections, f)
	case f.obj != nil && !f.optional && !f.list:
		v.Set(f.obj.template)
	case f.list && f.dflt != "":
		words := strings.Fields(f.dflt)
		if f.fixed == 0 {
			v.Set(reflect.MakeSlice(v.Type(), len(words), len(words)))
		}
		for i, word := range words {
			f.mustSet(v.Index(i), word)
		}
	case f.form != nil && f.dflt != "":
		f.mustSet(v, f.dflt)
		f.shown = f.form.show(v)
	}
}

func (f *field) mustSet(v reflect.Value, text string) {
	if c := f.form.set(nil, f, v, text); c != nil {
		panic(fmt.Sprintf("config: default of %s: %s", f.key, c.message))
	}
}

// fill sets v, a struct described by o, to its defaults.
func (o *object) fill(v reflect.Value) {
	v.Set(o.template)
	for _, f := range o.sections {
		section := reflect.New(f.obj.typ)
		f.obj.fill(section.Elem())
		v.Field(f.index).Set(section)
	}
}
