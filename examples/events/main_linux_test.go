package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/penstock/penstock/internal/testutil/leak"
)

type program struct{ *testing.M }

// Run reads events, or runs the tests.
func (p program) Run() int {
	if os.Args[0] != readerName {
		return p.M.Run()
	}
	if err := read(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func TestMain(m *testing.M) { leak.Main(program{m}) }

// TestSend: all events arrive, in their order.
func TestSend(t *testing.T) {
	for _, way := range []string{"ring", "eventfd"} {
		if _, err := send(way, 20_000); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
}
