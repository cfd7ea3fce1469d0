package perfevent

import (
	"bufio"
	"debug/elf"
	"debug/gosym"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A symbol is a place in a program. Inlined functions are those that contain them.
type symbol struct {
	name, file string
	line       int
}

// symbols name the addresses of a process that is written in Go, and of the kernel.
type symbols struct {
	pid     int
	program string // the path, as the mappings have it
	file    *elf.File
	table   *gosym.Table
	maps    []mapping
	kernel  *kernelSymbols
}

// A mapping is a part of a process's memory.
type mapping struct {
	from, to, offset uint64
	path             string
}

// newSymbols opens the program of a process.
func newSymbols(pid int) (*symbols, error) {
	link := fmt.Sprintf("/proc/%d/exe", pid)
	program, err := os.Readlink(link)
	if err != nil {
		return nil, err
	}
	file, err := elf.Open(link)
	if err != nil {
		return nil, err
	}
	s := &symbols{pid: pid, program: program, file: file}
	if s.table, err = goTable(file); err == nil {
		err = s.refresh()
	}
	if err == nil {
		s.kernel, err = readKernelSymbols()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return s, nil
}

// close closes the program.
func (s *symbols) close() { _ = s.file.Close() } // it was read

var errNotGo = errors.New("not a program in Go, or one without its table of functions")

// goTable returns the table of functions that the Go linker writes, also into stripped programs.
func goTable(file *elf.File) (*gosym.Table, error) {
	text := file.Section(".text")
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if section := file.Section(name); section != nil && text != nil {
			data, err := section.Data()
			if err != nil {
				return nil, err
			}
			return gosym.NewTable(nil, gosym.NewLineTable(data, text.Addr))
		}
	}
	return nil, errNotGo
}

// refresh reads the executable mappings.
func (s *symbols) refresh() error {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", s.pid))
	if err != nil {
		return err
	}
	defer f.Close()
	var list []mapping
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if m, ok := parseMapping(lines.Text()); ok {
			list = append(list, m)
		}
	}
	if len(list) > 0 { // of a process that is ending there are none
		s.maps = list
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
	if len(fields) > 5 {
		m.path = strings.Join(fields[5:], " ")
	}
	return m, errors.Join(errs[:]...) == nil
}

// at names an address of the process.
func (s *symbols) at(address uint64) symbol {
	for _, m := range s.maps {
		if address < m.from || address >= m.to {
			continue
		}
		if m.path != s.program {
			return symbol{name: "[" + strings.Trim(filepath.Base(m.path), "[]") + "]"}
		}
		if file, line, f := s.table.PCToLine(s.linked(address - m.from + m.offset)); f != nil {
			return symbol{f.Name, file, line}
		}
	}
	return symbol{name: "[unknown]"}
}

// linked returns the address for which the linker has placed an offset of the program's file.
func (s *symbols) linked(offset uint64) uint64 {
	for _, p := range s.file.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && offset >= p.Off && offset < p.Off+p.Filesz {
			return offset - p.Off + p.Vaddr
		}
	}
	return offset
}
