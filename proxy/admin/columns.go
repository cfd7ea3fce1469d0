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
	index   []int    // of the field
}

// Columns returns the columns of a type of status, such as [Endpoint], in the order of its fields.
func Columns[T any]() (list []Column) {
	var walk func(t reflect.Type, path []string, index []int)
	walk = func(t reflect.Type, path []string, index []int) {
		for _, f := range reflect.VisibleFields(t) {
			path, index := append(slices.Clip(path), jsonName(f)), append(slices.Clip(index), f.Index...)
			if tag := strings.Split(f.Tag.Get("column"), ","); tag[0] != "" {
				list = append(list, Column{jsonName(f), tag[0], path, slices.Contains(tag, "nonzero"), slices.Contains(tag, "wide"), index})
			} else if f.Type.Kind() == reflect.Struct && !f.Anonymous {
				walk(f.Type, path, index)
			}
		}
	}
	walk(reflect.TypeFor[T](), nil, nil)
	return list
}

// Of returns the number in a status, which is a pointer.
func (c *Column) Of(status any) int64 {
	return reflect.ValueOf(status).Elem().FieldByIndex(c.index).Int()
}
