package arena

import (
	"slices"
	"testing"

	"github.com/penstock/penstock/internal/sys"
)

func TestParseNodes(t *testing.T) {
	for text, want := range map[string][]int{
		"0\n": {0}, "0-1\n": {0, 1}, "0-1,3": {0, 1, 3}, "2,5-7\n": {2, 5, 6, 7}, "\n": nil, "": nil,
	} {
		if got, err := parseNodes(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"x", "1-", "-1", "3-2", "0-99999999", "0 1"} {
		if got, err := parseNodes(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestDeal(t *testing.T) {
	var allowed sys.NodeMask
	allowed.Set(1)
	allowed.Set(70)
	nodes := keep([]int{0, 1, 70}, &allowed)
	if got := deal(3, nodes); !slices.Equal(got, []int{1, 70, 1}) {
		t.Errorf("%v", got)
	}
}

func TestHugeIn(t *testing.T) {
	const smaps = `c0000000-c0400000 rw-p 00000000 00:00 0
Size:               4096 kB
AnonHugePages:      4096 kB
VmFlags: rd wr mr mw me ac sd hg
70000000-70a00000 rw-p 00000000 00:00 0                          [anon: x]
AnonHugePages:      2048 kB
70a00000-70b00000 rw-p 00000000 00:00 0
Rss: 0 kB
`
	for address, want := range map[uintptr]int64{0x70000000: 2 << 20, 0x709fffff: 2 << 20, 0xc0000000: 4 << 20} {
		if got, err := hugeIn([]byte(smaps), address); got != want || err != nil {
			t.Errorf("%#x: %d, %v; want %d", address, got, err, want)
		}
	}
	for _, address := range []uintptr{0, 0x70a00000} {
		if got, err := hugeIn([]byte(smaps), address); err == nil {
			t.Errorf("%#x: %d", address, got)
		}
	}
}
