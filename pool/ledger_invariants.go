//go:build invariants

package pool

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/penstock/penstock/internal/callsite"
)

const invariants = true

// A ledger knows the idle items and where they were put, and panics when one is put or discarded
// that is idle.
type ledger[T any] struct {
	mu   sync.Mutex
	idle map[uintptr]callsite.Site // alive, for they are idle
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
	l.refuse(id, "put", x)
	if l.idle == nil {
		l.idle = make(map[uintptr]callsite.Site)
	}
	l.idle[id] = callsite.Here()
}

// check panics if x is idle: before Config.Reset or Close have it, which act on an item of the
// caller's.
func (l *ledger[T]) check(op string, x T) {
	if id, ok := identity(x); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.refuse(id, op, x)
	}
}

// refuse panics if the item is idle.
func (l *ledger[T]) refuse(id uintptr, op string, x T) {
	if site, idle := l.idle[id]; idle {
		panic(fmt.Sprintf("pool: %s of a %T that is idle\n\tput at %v\n\t%s again at %v", op, x, site, op, callsite.Here()))
	}
}

// out notes that x has been taken out.
func (l *ledger[T]) out(x T) {
	if id, ok := identity(x); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.idle, id)
	}
}
