package process_test

import (
	"testing"

	"github.com/penstock/penstock/bench/process"
)

func TestMachineCPUCountsWhatIsUsed(t *testing.T) {
	before, err := process.MachineCPU()
	if err != nil {
		t.Fatal(err)
	}
	burn(used() + burned)
	after, err := process.MachineCPU()
	// One tick of 10 ms may be missing at either end, on each processor.
	if err != nil || after-before < burned/2 {
		t.Errorf("%v was used here, the machine reports %v, %v", burned, after-before, err)
	}
}

func TestSlabIsSomeOfTheMemory(t *testing.T) {
	if n, err := process.Slab(); err != nil || n < 1<<20 || n > 1<<40 {
		t.Errorf("got %d, %v", n, err)
	}
}
