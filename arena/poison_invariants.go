//go:build invariants

package arena

import (
	"fmt"

	"github.com/penstock/penstock/internal/callsite"
)

const invariants = true

// pattern fills the slots that are not out.
const pattern = 0xdb

func poison(b []byte) {
	for i := range b {
		b[i] = pattern
	}
}

// releases has the place of the latest release for each unit of MinSlot. A unit belongs to the Local that has
// the chunk.
type releases []callsite.Site

func newReleases(slots int) releases { return make(releases, slots) }

// note records that the present call releases the slot of n bytes at unit.
func (r releases) note(unit uint32, n int) {
	here := callsite.Here()
	for i := range n / MinSlot {
		r[int(unit)+i] = here
	}
}

// check panics if one of the bytes b, at an offset of the arena where no slot is out, was written to.
func (r releases) check(b []byte, offset int64) {
	for i, c := range b {
		if c == pattern {
			continue
		}
		at := offset + int64(i)
		panic(fmt.Sprintf("arena: byte %d of the slot of %d bytes at offset %d was written to while the slot was not out\n\t%s",
			i, len(b), offset, r.before(at)))
	}
}

// before says where the slot with the byte at that offset was released.
func (r releases) before(at int64) string {
	if site := r[at/MinSlot]; site != 0 {
		return fmt.Sprintf("released at %v", site)
	}
	return "no slot of these bytes was out before"
}

// checkAll panics if memory was written to after all slots were released.
func (a *Arena) checkAll() {
	for at := 0; at < len(a.bytes); at += MinSlot {
		a.releases.check(a.bytes[at:at+MinSlot], int64(at))
	}
}
