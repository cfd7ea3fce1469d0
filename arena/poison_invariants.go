//go:build invariants

package arena

import "fmt"

const invariants = true

// pattern fills slots that are not out.
const pattern = 0xdb

func poison(b []byte) {
	for i := range b {
		b[i] = pattern
	}
}

// checkPoison panics if the slot of h, which is about to be handed out, was written
// to since it was put.
func checkPoison(b []byte, h Handle) {
	for i, c := range b {
		if c != pattern {
			panic(fmt.Sprintf("arena: byte %d of the slot of %d bytes at offset %d was written to while the slot was not out", i, len(b), h.Offset()))
		}
	}
}
