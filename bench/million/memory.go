package million

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
)

// memory is the memory of this process, in bytes.
type memory struct {
	rssAnon int64 // proc(5), /proc/pid/status
	heap    int64 // of objects in use
}

// held returns free memory to the kernel, and then reads the figures.
func held() (memory, error) {
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	rss, err := kilobytes("/proc/self/status", "RssAnon:")
	return memory{rss, int64(m.HeapAlloc)}, err
}

// kilobytes is the figure of a file of proc(5) that follows a name, in bytes.
func kilobytes(file, name string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("million: %w", err)
	}
	for line := range bytes.Lines(text) {
		if rest, ok := bytes.CutPrefix(line, []byte(name)); ok {
			var kib int64
			_, err := fmt.Sscanf(string(rest), "%d kB", &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("million: %s has no %s", file, name)
}
