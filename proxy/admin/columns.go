package admin

import (
	"reflect"
	"slices"
	"strings"
)

// A Column is a number of a status that has a column in a table of the page, because its field has a column tag. The tag
// is the heading. After a comma it has nonzero if the page shows a dash for 0, and wide if only wide pages have the column.
type Column struct {
	Key     string   `json:"key"` // name of the field
	Title   string   `json:"title"`
	Path    []string `json:"path"` // names of the structs around the field, and Key
	Nonzero bool     `json:"nonzero"`
	Wide    bool     `json:"wide"`
	index   [][]int  // of the field, from struct to struct
}

// Columns returns the columns of a type of status, such as [Endpoint], in the order of its fields.
func Columns[T any]() (list []Column) {
	var walk func(t reflect.Type, path []string, index [][]int)
	walk = func(t reflect.Type, path []string, index [][]int) {
		for _, f := range reflect.VisibleFields(t) {
			path, index := append(slices.Clone(path), jsonName(f)), append(slices.Clone(index), f.Index)
			of := f.Type
			if of.Kind() == reflect.Pointer {
				of = of.Elem()
			}
			if of.Kind() == reflect.Struct && f.IsExported() && !f.Anonymous {
				walk(of, path, index)
			} else if tag := strings.Split(f.Tag.Get("column"), ","); tag[0] != "" {
				list = append(list, Column{jsonName(f), tag[0], path, slices.Contains(tag, "nonzero"), slices.Contains(tag, "wide"), index})
			}
		}
	}
	walk(reflect.TypeFor[T](), nil, nil)
	return list
}

// Of returns the number in a status, which is a pointer: 0 if the status does not have the part with the number.
func (c *Column) Of(status any) int64 {
	v := reflect.ValueOf(status)
	for _, i := range c.index {
		if v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return 0
			}
			v = v.Elem()
		}
		v = v.FieldByIndex(i)
	}
	return v.Int()
}
