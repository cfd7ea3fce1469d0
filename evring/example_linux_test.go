package evring_test

import (
	"fmt"

	"github.com/penstock/penstock/evring"
)

// A goroutine posts to a consumer, which waits for the eventfd by the runtime's
// poller. A loop watches Eventfd by its own epoll instead.
func ExampleRing() {
	ring, err := evring.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer ring.Close()
	memory, event, err := ring.Files() // duplicates: ours
	if err != nil {
		fmt.Println(err)
		return
	}
	defer memory.Close()
	defer event.Close()

	go ring.PushBatch([][]byte{[]byte("drain"), []byte("stop")})

	var count [8]byte
	for stopped := false; !stopped; {
		ring.Drain(0, func(message []byte) {
			fmt.Printf("%s\n", message)
			stopped = string(message) == "stop"
		})
		if !stopped && ring.Sleep() {
			event.Read(count[:])
		}
		ring.Awake(false) // it has been read
	}
	// Output:
	// drain
	// stop
}
