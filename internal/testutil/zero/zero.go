// Package zero calls the methods of zero values.
package zero

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// Methods calls each method of each value, pointers to zero values, with zero arguments: a context is
// context.Background, and a pointer points at a zero value. It fails the test for a panic, unless panics has a
// reason for it under TYPE.METHOD. It also fails the test if the descriptors 0 to 2 have changed, because a
// zero value contains their numbers. A method that hangs, or ends the process, fails the test too.
func Methods(t *testing.T, panics map[string]string, values ...any) {
	t.Helper()
	before := standard(t)
	for _, v := range values {
		of := reflect.TypeOf(v)
		for i := range of.NumMethod() {
			if file, _ := runtime.FuncForPC(of.Method(i).Func.Pointer()).FileLine(of.Method(i).Func.Pointer()); strings.HasSuffix(file, "_test.go") {
				continue // only for tests
			}
			name := of.Elem().Name() + "." + of.Method(i).Name
			err := call(reflect.New(of.Elem()).Method(i))
			if _, expected := panics[name]; err != nil && !expected {
				t.Errorf("%s: panic: %v", name, err)
			}
		}
	}
	for fd, now := range standard(t) {
		if !os.SameFile(now, before[fd]) {
			t.Errorf("descriptor %d is another file than before", fd)
		}
	}
}

// standard returns the files behind the descriptors 0 to 2.
func standard(t *testing.T) (files [3]os.FileInfo) {
	for fd, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		is, err := f.Stat()
		if err != nil {
			t.Fatal(fd, err)
		}
		files[fd] = is
	}
	return files
}

func call(f reflect.Value) (panicked error) {
	defer func() {
		if v := recover(); v != nil {
			panicked = fmt.Errorf("%v", v)
		}
	}()
	args := make([]reflect.Value, f.Type().NumIn())
	for i := range args {
		switch in := f.Type().In(i); {
		case in == reflect.TypeFor[context.Context]():
			args[i] = reflect.ValueOf(context.Background())
		case in.Kind() == reflect.Pointer:
			args[i] = reflect.New(in.Elem())
		default:
			args[i] = reflect.Zero(in)
		}
	}
	f.Call(args)
	return nil
}
