//go:build invariants

package pool

import (
	"fmt"
	"reflect"
	"sync"
)

const invariants = true

// A ledger knows the idle items, and panics when one is put that is idle.
type ledger[T any] struct {
	mu   sync.Mutex
	idle map[uintptr]struct{} // alive, for they are idle
}

// identity returns a number that distinguishes x from other items; false if there is none, as
// for numbers and structs. A nil pointer and a pointer to nothing have none.
func identity(x any) (uintptr, bool) {
	v := reflect.ValueOf(x)
	switch v.Kind() {
	case reflect.Pointer:
		return v.Pointer(), !v.IsNil() && v.Type().Elem().Size() > 0
	case reflect.Slice:
		return v.Pointer(), v.Cap() > 0 && v.Type().Elem().Size() > 0
	case reflect.Chan, reflect.Map, reflect.UnsafePointer:
		return v.Pointer(), !v.IsNil()
	}
	return 0, false
}

// in notes that x is put.
func (l *ledger[T]) in(x T) {
	id, ok := identity(x)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, idle := l.idle[id]; idle {
		panic(fmt.Sprintf("pool: put of a %T that is idle", x))
	}
	if l.idle == nil {
		l.idle = make(map[uintptr]struct{})
	}
	l.idle[id] = struct{}{}
}

// out notes that x has been taken out.
func (l *ledger[T]) out(x T) {
	if id, ok := identity(x); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.idle, id)
	}
}
