package arena

import (
	"bytes"
	"errors"
	"fmt"
	"os"
)

// hugeBytes returns how many bytes of the mapping that contains the address are transparent
// huge pages, by /proc/self/smaps (proc_pid_smaps(5)).
func hugeBytes(address uintptr) (int64, error) {
	text, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return 0, err
	}
	return hugeIn(text, address)
}

func hugeIn(smaps []byte, address uintptr) (int64, error) {
	inside := false
	for line := range bytes.Lines(smaps) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(string(line), "%x-%x ", &from, &to); n == 2 {
			inside = from <= address && address < to
			continue
		}
		if !inside {
			continue
		}
		var kib int64
		if n, _ := fmt.Sscanf(string(line), "AnonHugePages: %d kB", &kib); n == 1 {
			return kib << 10, nil
		}
	}
	return 0, errors.New("/proc/self/smaps does not tell")
}
