//go:build invariants

package pool

import (
	"fmt"
	"reflect"
	"sync"

	"github.com/penstock/penstock/internal/callsite"
)

const invariants = true

// A ledger knows the idle items and where they were put. It panics when an idle item is put or discarded.
type ledger[T any] struct {
	mu   sync.Mutex
	idle map[uintptr]callsite.Site // idle items stay alive, so their addresses stay unique
}

// identity returns a number that distinguishes x from other items, or false if it has none, like numbers,
// structs, nil pointers and pointers to nothing.
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

// in records that x was put.
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

// check panics if x is idle, before Config.Reset or Close can act on it.
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

// out records that x was taken out.
func (l *ledger[T]) out(x T) {
	if id, ok := identity(x); ok {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.idle, id)
	}
}
