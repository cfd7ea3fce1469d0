//go:build !linux

package loop

func owned() bool { return false }

func (l *load) follow() {}

func (l *load) leave() { l.batch = false }
