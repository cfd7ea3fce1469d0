//go:build linux

package core

import "reflect"

// SetControl has connecting fail for what f returns. It is called before Serve.
func (g *Group) SetControl(f func() error) { g.control = f }

// SetControlNow is SetControl while it serves.
func (g *Group) SetControlNow(f func() error) {
	for _, c := range g.cores {
		done := make(chan struct{})
		c.post(func() { g.control = f; close(done) })
		<-done
	}
}

// Wake has the loops look at their clocks.
func (g *Group) Wake() {
	for _, c := range g.cores {
		c.post(func() {})
	}
}

// ConnSize is how many bytes a session takes, and how many of them are the relay's.
func ConnSize() (all, relays uintptr) {
	t := reflect.TypeFor[conn]()
	session, _ := t.FieldByName("session")
	return t.Size(), session.Type.Size()
}
