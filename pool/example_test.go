package pool_test

import (
	"errors"
	"fmt"

	"github.com/penstock/penstock/pool"
)

// Buffers of several sizes share a budget of 128 KiB.
func ExampleBytes() {
	buffers, err := pool.NewBytes(pool.BytesConfig{MaxSize: 64 << 10, Budget: 128 << 10})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer buffers.Close()

	a, _ := buffers.Get(50_000)
	b, _ := buffers.Get(64 << 10)
	fmt.Println(len(a), cap(a), len(b), cap(b))

	// Both are out, so there is no third, not even a small one.
	_, err = buffers.Get(100)
	fmt.Println(err, errors.Is(err, pool.ErrBudget))

	// An idle buffer makes room for one of another class.
	buffers.Put(a)
	c, err := buffers.Get(100)
	fmt.Println(len(c), cap(c), err)

	buffers.Put(b)
	buffers.Put(c)
	s := buffers.Stats()
	fmt.Println("used:", s.Used, "idle:", s.IdleBytes, "refused:", s.Refused)
	// Output:
	// 50000 65536 65536 65536
	// penstock: pool: budget spent true
	// 100 512 <nil>
	// used: 66048 idle: 66048 refused: 1
}
