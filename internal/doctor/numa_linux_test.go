package doctor

import (
	"testing"
	"testing/fstest"
)

// TestNear: the node is the first that has a CPU of this process's.
func TestNear(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text + "\n")} }
	files := fstest.MapFS{
		"proc/self/status":                      file("Cpus_allowed_list:\t5-9"),
		"sys/devices/system/node/online":        file("0-2"),
		"sys/devices/system/node/node0/cpulist": file("0-3"),
		"sys/devices/system/node/node1/cpulist": file(""),
		"sys/devices/system/node/node2/cpulist": file("4-7"),
	}
	if node, cpus := (host{files}).near(); node != 2 || cpus.String() != "5-7" {
		t.Errorf("node %d, CPUs %v", node, cpus)
	}
	for _, missing := range []string{"proc/self/status", "sys/devices/system/node/node2/cpulist"} {
		delete(files, missing)
		if node, cpus := (host{files}).near(); cpus != nil {
			t.Errorf("without %s: node %d, CPUs %v", missing, node, cpus)
		}
	}
}
