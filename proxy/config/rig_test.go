package config_test

import (
	"reflect"
	"sync"
	"testing"

	selfsigned "github.com/penstock/penstock/internal/testutil/certificate"
)

var (
	pairsMu sync.Mutex
	pairs   = make(map[string][2]string)
)

// certificate returns one for a name, and its key, the same ones for the same name.
func certificate(t testing.TB, name string) (cert, key string) {
	t.Helper()
	pairsMu.Lock()
	defer pairsMu.Unlock()
	if p, ok := pairs[name]; ok {
		return p[0], p[1]
	}
	cert, key = selfsigned.New(t, name)
	pairs[name] = [2]string{cert, key}
	return cert, key
}

// equalFields returns the fields, but for Pos, that two structs have in common.
func equalFields(a, b any) (names []string) {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		name := va.Type().Field(i).Name
		if name != "Pos" && reflect.DeepEqual(va.Field(i).Interface(), vb.Field(i).Interface()) {
			names = append(names, name)
		}
	}
	return names
}
