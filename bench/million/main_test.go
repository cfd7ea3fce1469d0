package million

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/penstock/penstock/bench/process"
	"github.com/penstock/penstock/internal/testutil/leak"
)

// childName is the first argument of a test binary that runs as a part; the form and the number
// of sessions follow.
const childName = "penstock-million-test"

// fewMessages is the number of messages that a part measures here.
const fewMessages = 3000

func TestMain(m *testing.M) {
	if os.Args[0] != childName {
		leak.Main(m)
	}
	leastMessages = fewMessages
	n, err := strconv.Atoi(os.Args[2])
	if err == nil {
		err = Serve(Form(os.Args[1]), n, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// spec runs this test binary as a part.
func spec(form Form, n int) process.Spec {
	return process.Spec{Name: string(form), Path: "/proc/self/exe", Args: []string{childName, string(form), strconv.Itoa(n)}}
}
