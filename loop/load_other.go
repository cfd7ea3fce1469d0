//go:build !linux

package loop

func (l *load) follow() {}

func (l *load) leave() { l.batch = false }
