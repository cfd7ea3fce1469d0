package relay

import "testing"

// TestMirrorsShareATurn: however many mirrors have answers to be read, no turn reads more than its share, and each of them
// reads once before any reads twice.
func TestMirrorsShareATurn(t *testing.T) {
	t.Parallel()

	const mirrors = 11
	var h hearing
	var all [mirrors]Mirror
	var reads [mirrors]int
	for turn := int64(1); turn <= 300; turn++ {
		n := 0
		for i := range all { // each tries again after its read, as one that has more to read does
			for h.may(&all[i], turn) {
				h.bytes += hearBytes
				n += hearBytes
				reads[i]++
			}
		}
		least, most := reads[0], reads[0]
		for _, r := range reads {
			least, most = min(least, r), max(most, r)
		}
		if n == 0 || n > hearAllBytes || most > least+1 {
			t.Fatalf("turn %d: %d bytes; reads %v", turn, n, reads)
		}
	}
}
