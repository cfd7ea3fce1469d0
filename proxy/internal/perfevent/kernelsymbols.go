package perfevent

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"
)

// kernelSymbols are the functions of the kernel, by their address.
type kernelSymbols struct {
	addresses []uint64
	names     []string
}

// readKernelSymbols reads /proc/kallsyms: address, type and name of a line. To those who may not know addresses all
// are 0 (kernel.kptr_restrict, proc(5)).
func readKernelSymbols() (*kernelSymbols, error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	type entry struct {
		at   uint64
		name string
	}
	var list []entry
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || !strings.Contains("tTwW", fields[1]) {
			continue
		}
		if at, err := strconv.ParseUint(fields[0], 16, 64); err == nil && at != 0 {
			list = append(list, entry{at, fields[2]})
		}
	}
	slices.SortStableFunc(list, func(a, b entry) int {
		switch {
		case a.at < b.at:
			return -1
		case a.at > b.at:
			return 1
		}
		return 0
	})
	k := new(kernelSymbols)
	for _, e := range list {
		k.addresses, k.names = append(k.addresses, e.at), append(k.names, e.name)
	}
	return k, lines.Err()
}

// hidden reports whether there are no addresses.
func (k *kernelSymbols) hidden() bool { return len(k.addresses) == 0 }

// kernelFile is the file of the kernel's frames, as perf(1) has it.
const kernelFile = "[kernel.kallsyms]"

// at names an address.
func (k *kernelSymbols) at(address uint64) symbol {
	i, exact := slices.BinarySearch(k.addresses, address)
	if !exact {
		i--
	}
	if i < 0 {
		return symbol{name: "[kernel]", file: kernelFile}
	}
	return symbol{name: k.names[i], file: kernelFile}
}
