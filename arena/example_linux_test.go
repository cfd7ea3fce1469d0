package arena_test

import (
	"fmt"
	"log"

	"github.com/penstock/penstock/arena"
)

// A loop has a Local, keeps one slot to read into, and takes another one only for
// bytes that a slow destination did not take.
func Example() {
	a, err := arena.New(&arena.Config{Size: 1 << 20, Locals: 1})
	if err != nil {
		log.Fatal(err)
	}
	l := a.Local(0)
	h, err := l.Get(4096, arena.Residue)
	if err != nil {
		log.Fatal(err) // arena.ErrBudget: stop reading from the source instead
	}
	slot, err := l.Bytes(h)
	if err != nil {
		log.Fatal(err)
	}

	var left arena.Ring // 8 bytes of a session, beside its handle
	left.Write(slot, []byte("what was left "))
	left.Write(slot, []byte("behind"))
	first, second := left.Peek(slot) // for writev(2)
	fmt.Printf("%s%s\n", first, second)
	left.Discard(len(first) + len(second))

	fmt.Println(l.Put(h))
	fmt.Println(l.Put(h))
	fmt.Println(a.Close())
	// Output:
	// what was left behind
	// <nil>
	// penstock: arena: stale handle
	// <nil>
}
