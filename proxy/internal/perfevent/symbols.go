package perfevent

import (
	"bufio"
	"cmp"
	"debug/elf"
	"debug/gosym"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A symbol is a place in a program. An inlined function counts as the function that contains it.
type symbol struct {
	name, file string
	line       int
}

// symbols name the addresses of processes and of the kernel.
type symbols struct {
	processes map[int][]mapping
	programs  map[string]*program // by device and inode, because processes share them
	kernel    functions
}

func newSymbols() (*symbols, error) {
	kernel, err := kernelFunctions()
	return &symbols{processes: make(map[int][]mapping), programs: make(map[string]*program), kernel: kernel}, err
}

// A mapping is an executable part of a process's memory.
type mapping struct {
	from, to, offset uint64
	path, id         string
	program          *program // nil: the file could not be read
}

// read reads the mappings of a process, and the symbols of the mapped files. What is known of an ended process
// stays.
func (s *symbols) read(pid int) error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return err
	}
	defer f.Close()
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // a kernel thread has none
	var list []mapping
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		m, ok := parseMapping(lines.Text())
		if !ok {
			continue
		}
		name := fmt.Sprintf("/proc/%d/root%s", pid, m.path)
		if m.path == exe {
			name = fmt.Sprintf("/proc/%d/exe", pid) // valid even if the file was replaced
		}
		if _, known := s.programs[m.id]; !known && filepath.IsAbs(m.path) {
			s.programs[m.id] = readProgram(name, m.path)
		}
		m.program = s.programs[m.id]
		list = append(list, m)
	}
	if len(list) > 0 || s.processes[pid] == nil {
		s.processes[pid] = list
	}
	return lines.Err()
}

// parseMapping reads a line of proc_pid_maps(5): addresses, permissions, offset, device, inode, path.
func parseMapping(line string) (m mapping, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || !strings.Contains(fields[1], "x") {
		return m, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	var errs [3]error
	m.from, errs[0] = strconv.ParseUint(from, 16, 64)
	m.to, errs[1] = strconv.ParseUint(to, 16, 64)
	m.offset, errs[2] = strconv.ParseUint(fields[2], 16, 64)
	m.path, m.id = strings.Join(fields[5:], " "), strings.Join(fields[3:], " ")
	return m, errors.Join(errs[:]...) == nil
}

// at names an address of a process.
func (s *symbols) at(pid int, address uint64) symbol {
	for _, m := range s.processes[pid] {
		if address < m.from || address >= m.to {
			continue
		}
		if m.program != nil {
			if found, ok := m.program.at(address - m.from + m.offset); ok {
				return found
			}
		}
		return symbol{name: "[" + strings.Trim(filepath.Base(m.path), "[]") + "]"}
	}
	return symbol{name: "[unknown]"}
}

// inKernel names an address of the kernel. Its file is named as in perf(1).
func (s *symbols) inKernel(address uint64) symbol {
	name, ok := s.kernel.at(address)
	if !ok {
		name = "[kernel]"
	}
	return symbol{name: name, file: "[kernel.kallsyms]"}
}

// A program is an ELF file: an executable or a library.
type program struct {
	path      string
	loads     []elf.ProgHeader // its executable parts
	table     *gosym.Table     // nil: the program is not written in Go
	functions functions        // from the symbol tables
}

// readProgram reads the file name, which the process calls path. It returns nil if the file cannot be read, or is
// no ELF file.
func readProgram(name, path string) *program {
	f, err := elf.Open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	p := &program{path: path}
	for _, part := range f.Progs {
		if part.Type == elf.PT_LOAD && part.Flags&elf.PF_X != 0 {
			p.loads = append(p.loads, part.ProgHeader)
		}
	}
	list, _ := f.Symbols() // a stripped file has only dynamic symbols
	dynamic, _ := f.DynamicSymbols()
	var text uint64
	if section := f.Section(".text"); section != nil {
		text = section.Addr
	}
	for _, s := range append(list, dynamic...) {
		if s.Name == "runtime.text" {
			text = s.Value // in a program with C code, Go code begins later
		}
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 {
			p.functions = append(p.functions, function{s.Value, s.Value + s.Size, s.Name})
		}
	}
	p.functions.sort()
	p.table = goTable(f, text)
	return p
}

// goTable returns the table of functions that the Go linker writes even into stripped programs; nil: there is
// none.
func goTable(f *elf.File, text uint64) *gosym.Table {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if section := f.Section(name); section != nil {
			data, err := section.Data()
			if err != nil {
				return nil
			}
			table, _ := gosym.NewTable(nil, gosym.NewLineTable(data, text)) // nil if there is an error
			return table
		}
	}
	return nil
}

// at names the function at an offset of the file.
func (p *program) at(offset uint64) (symbol, bool) {
	at := offset
	for _, part := range p.loads {
		if offset >= part.Off && offset < part.Off+part.Filesz {
			at = offset - part.Off + part.Vaddr
		}
	}
	if p.table != nil {
		if file, line, f := p.table.PCToLine(at); f != nil {
			return symbol{f.Name, file, line}, true
		}
	}
	name, ok := p.functions.at(at)
	return symbol{name: name, file: p.path}, ok
}

// functions are sorted by address.
type functions []function

type function struct {
	from, to uint64
	name     string
}

func (list functions) sort() {
	slices.SortStableFunc(list, func(a, b function) int { return cmp.Compare(a.from, b.from) })
}

// at returns the name of the function that contains an address.
func (list functions) at(address uint64) (string, bool) {
	i, found := slices.BinarySearchFunc(list, address, func(f function, at uint64) int { return cmp.Compare(f.from, at) })
	if !found {
		i--
	}
	if i < 0 || address >= list[i].to {
		return "", false
	}
	return list[i].name, true
}

// kernelFunctions reads /proc/kallsyms. A line has an address, a type and a name. A reader who may not see the
// addresses gets 0 for each (kernel.kptr_restrict, proc(5)); then the list is empty. A function has no known end,
// so it reaches up to the next function.
func kernelFunctions() (list functions, err error) {
	f, err := os.Open("/proc/kallsyms")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 || !strings.Contains("tTwW", fields[1]) {
			continue
		}
		if at, err := strconv.ParseUint(fields[0], 16, 64); err == nil && at != 0 {
			list = append(list, function{at, ^uint64(0), fields[2]})
		}
	}
	list.sort()
	return list, lines.Err()
}
