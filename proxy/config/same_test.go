package config_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"regexp"
	"testing"
	"time"

	"github.com/penstock/penstock/proxy/config"
	clients "github.com/penstock/penstock/proxy/internal/source"
)

// filled returns a struct in which every pointer points to something and every list has
// something in it, so that each key is there.
func filled[T any]() *T {
	t := new(T)
	fillIn(reflect.ValueOf(t).Elem())
	return t
}

func fillIn(v reflect.Value) {
	switch {
	case v.Kind() == reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillIn(v.Elem())
	case v.Kind() == reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillIn(v.Index(0))
	case v.Kind() == reflect.Struct && !opaque(v.Type()):
		for i := range v.NumField() {
			fillIn(v.Field(i))
		}
	}
}

// opaque reports whether a struct is a single value.
func opaque(t reflect.Type) bool {
	return t == reflect.TypeFor[netip.Addr]() || t == reflect.TypeFor[config.Rule]()
}

// alterations calls f with every value of v changed in turn, and changes it back.
func alterations(t *testing.T, path string, v reflect.Value, f func(path string)) {
	was := reflect.New(v.Type()).Elem()
	was.Set(v)
	changed := func(to reflect.Value, what string) {
		v.Set(to)
		f(path + what)
		v.Set(was)
	}
	switch {
	case opaque(v.Type()):
		changed(other(t, v), "")
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			alterations(t, path+"."+v.Type().Field(i).Name, v.Field(i), f)
		}
	case v.Kind() == reflect.Pointer:
		changed(reflect.Zero(v.Type()), " absent")
		alterations(t, path, v.Elem(), f)
	case v.Kind() == reflect.Slice:
		changed(reflect.Zero(v.Type()), " empty")
		changed(reflect.Append(v, reflect.New(v.Type().Elem()).Elem()), " longer")
		alterations(t, path+"[0]", v.Index(0), f)
	case v.Kind() == reflect.Array:
		for i := range v.Len() {
			alterations(t, fmt.Sprintf("%s[%d]", path, i), v.Index(i), f)
		}
	default:
		changed(other(t, v), "")
	}
}

// other returns another value.
func other(t *testing.T, v reflect.Value) reflect.Value {
	o := reflect.New(v.Type()).Elem()
	switch {
	case v.Type() == reflect.TypeFor[netip.Addr]():
		return reflect.ValueOf(netip.MustParseAddr("192.0.2.1"))
	case v.Type() == reflect.TypeFor[config.Rule]():
		return reflect.ValueOf(clients.Prefix(netip.MustParsePrefix("192.0.2.0/24")))
	case v.CanInt():
		o.SetInt(v.Int() + int64(time.Second))
		if o.OverflowInt(v.Int() + int64(time.Second)) {
			o.SetInt(v.Int() + 1)
		}
	case v.CanUint():
		o.SetUint(v.Uint() + 1)
	case v.CanFloat():
		o.SetFloat(v.Float() + 0.5)
	case v.Kind() == reflect.Bool:
		o.SetBool(!v.Bool())
	case v.Kind() == reflect.String:
		o.SetString(v.String() + "x")
	default:
		t.Fatalf("%v: this test does not know how to change it", v.Type())
	}
	return o
}

// TestSame: configurations with different values of a key are not the same, except for where
// and how these were written. A new key is found by its absence in same.go.
func TestSame(t *testing.T) {
	sameBy(t, (*config.Listener).Same)
	sameBy(t, func(a, b *config.Upstream) bool { return a.SameButEndpoints(b) && a.SameEndpoints(b) })
	sameBy(t, (*config.HealthCheck).Same)
	sameBy(t, (*config.Discover).Same)
}

// written is where and how a value was written.
var written = regexp.MustCompile(`\.Pos\.(File|Line|Column)$|\.(Send|Expect|Standby|Body)\.Source$`)

func sameBy[T any](t *testing.T, same func(a, b *T) bool) {
	t.Helper()
	a, b := filled[T](), filled[T]()
	if !same(a, b) {
		t.Errorf("%T: two that say the same are not the same", a)
	}
	n := 0
	alterations(t, fmt.Sprintf("%T", a), reflect.ValueOf(b).Elem(), func(path string) {
		n++
		if got, want := same(a, b), written.MatchString(path); got != want {
			t.Errorf("%s: same is %v, want %v", path, got, want)
		}
		if got, want := same(b, a), written.MatchString(path); got != want {
			t.Errorf("%s, the other way round: same is %v, want %v", path, got, want)
		}
	})
	if n < 3 {
		t.Errorf("%T: %d values were changed", a, n)
	}
}

// TestSameEndpoints: their order matters.
func TestSameEndpoints(t *testing.T) {
	e, f := config.Endpoint{Name: "e"}, config.Endpoint{Name: "f"}
	a, b := &config.Upstream{Endpoints: []config.Endpoint{e, f}}, &config.Upstream{Endpoints: []config.Endpoint{f, e}}
	if a.SameEndpoints(b) || !a.SameButEndpoints(b) {
		t.Error("another order of endpoints")
	}
}
