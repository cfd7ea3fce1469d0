package metrics

import (
	"reflect"
	"slices"
	"strings"

	"github.com/penstock/penstock/proxy/admin"
)

// A measure is a field of a status that has a family, for its metric tag. The tag is the end of the family's name. A struct, or a pointer to
// one, has the beginning of its fields' names, which is the whole of it if it begins with penstock_. After a comma a map of counts has the
// label of its keys, and nonzero means that 0 has no series. The comment on the field is the help.
type measure struct {
	Family
	path    []int  // of the field, through structs and pointers
	label   string // of the keys of a map; "": the field is a number
	nonzero bool
}

// measuresOf returns the measures of a type of status, whose families have labels.
func measuresOf[T any](prefix string, labels ...string) (list []measure) {
	help := admin.Comments()
	var walk func(t reflect.Type, prefix string, path []int)
	walk = func(t reflect.Type, prefix string, path []int) {
		for i := range t.NumField() {
			f := t.Field(i)
			tag, tagged := f.Tag.Lookup("metric")
			of, at := f.Type, append(slices.Clone(path), i)
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			switch {
			case of.Kind() == reflect.Struct && strings.HasPrefix(tag, "penstock_"):
				walk(of, tag, at)
			case of.Kind() == reflect.Struct && (tagged || f.Anonymous):
				walk(of, prefix+tag, at)
			case tagged:
				list = append(list, newMeasure(prefix, tag, help(t, f.Name), of.Kind() == reflect.Map, labels, at))
			}
		}
	}
	walk(reflect.TypeFor[T](), prefix, nil)
	return list
}

func newMeasure(prefix, tag, help string, counts bool, labels []string, path []int) measure {
	name, option, _ := strings.Cut(tag, ",")
	m := measure{Family: Family{prefix + name, Gauge, labels, help}, path: path, nonzero: option == "nonzero"}
	if strings.HasSuffix(name, "_total") {
		m.Kind = Counter
	}
	if counts {
		m.label, m.Labels = option, append(slices.Clone(labels), option)
	}
	return m
}

// of returns the field in a status; false: it is of a part that the status does not have.
func (m *measure) of(status reflect.Value) (field reflect.Value, there bool) {
	for _, i := range m.path {
		if status.Kind() == reflect.Pointer {
			if status.IsNil() {
				return status, false
			}
			status = status.Elem()
		}
		status = status.Field(i)
	}
	return status, true
}

// valueOf is the value of a field that is no map.
func valueOf(field reflect.Value) int64 {
	switch {
	case field.Kind() != reflect.Bool:
		return field.Int()
	case field.Bool():
		return 1
	}
	return 0
}

// write writes the series of a status, a pointer.
func (m *measure) write(e *encoder, status reflect.Value) {
	v, there := m.of(status)
	switch {
	case !there:
	case m.label != "":
		e.counts(m.label, v.Interface().(map[string]int64))
	case !m.nonzero || valueOf(v) != 0:
		e.int("", valueOf(v))
	}
}

// collect is write for the process. A part that it does not have counts nothing.
func (m *measure) collect(status reflect.Value, emit emitter) {
	v, there := m.of(status)
	switch {
	case m.label != "":
		if there {
			emitAll(emit, v.Interface().(map[string]int64))
		}
	case !there:
		emit(0)
	case !m.nonzero || valueOf(v) != 0:
		emit(float64(valueOf(v)))
	}
}

// statusFamilies returns the families of the measures of an object's status.
func statusFamilies[T, S any](of func(*T) *S, prefix string, labels ...string) (list []objectFamily[T]) {
	for _, m := range measuresOf[S](prefix, labels...) {
		list = append(list, objectFamily[T]{m.Family, func(e *encoder, object *T) { m.write(e, reflect.ValueOf(of(object))) }})
	}
	return list
}
