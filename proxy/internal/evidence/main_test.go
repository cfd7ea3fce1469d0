package evidence

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/penstock/penstock/internal/testutil/leak"
)

// asTracer is the environment variable that makes this program trace a process for a moment and
// print the report.
const asTracer = "PENSTOCK_TEST_TRACER"

func TestMain(m *testing.M) {
	if pid, err := strconv.Atoi(os.Getenv(asTracer)); err == nil {
		ctx, cancel := context.WithCancel(context.Background())
		r, err := Trace(ctx, Target{PIDs: []int{pid}}, func() { time.AfterFunc(200*time.Millisecond, cancel) })
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_ = json.NewEncoder(os.Stdout).Encode(r)
		os.Exit(0)
	}
	leak.Main(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
