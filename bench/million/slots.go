package million

import (
	"errors"

	"github.com/penstock/penstock/arena"
)

// slotSize is how many bytes are left behind for a slow destination.
const slotSize = 256

// slots measures an arena with n slots out.
func slots(n int) (*Slots, error) {
	a, err := arena.New(&arena.Config{Locals: 1, Size: int64(n) * slotSize})
	if err != nil {
		return nil, err
	}
	l, out := a.Local(0), make([]arena.Handle, n)
	var failed error
	get := func(i uint32) {
		var err error
		if out[i], err = l.Get(slotSize, arena.Residue); err != nil {
			failed = err
		}
	}
	put := func(i uint32) {
		if err := l.Put(out[i]); err != nil {
			failed = err
		}
	}
	change := func(i uint32) { put(i); get(i) }
	s := &Slots{SlotBytes: slotSize}
	s.Get = eachOf(anyOrder(n, 5), get)
	s.PutGet = eachOf(anyOrder(n, 6), change)
	s.Hot = eachOf(make([]uint32, leastMessages), change)
	eachOf(anyOrder(n, 7), put)
	return s, errors.Join(failed, a.Close())
}
