package perfevent

import (
	"bufio"
	"cmp"
	"debug/elf"
	"debug/gosym"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
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
	room      uint64   // how many bytes of programs may still be read
	lacking   []string // at most maxLacking programs for which not all names were read, and why
}

const (
	// maxBytes is how many bytes of all programs are read. A program may belong to a hostile user.
	maxBytes = 128 << 20
	// maxName is where longer names are cut.
	maxName = 4 << 10
	// maxLacking is how many programs are reported.
	maxLacking = 10
)

func newSymbols() (*symbols, error) {
	kernel, err := kernelFunctions()
	return &symbols{processes: make(map[int][]mapping), programs: make(map[string]*program), kernel: kernel, room: maxBytes}, err
}

// lack notes a program for which not all names were read.
func (s *symbols) lack(path, why string) {
	if len(s.lacking) < maxLacking {
		s.lacking = append(s.lacking, fmt.Sprintf("%q: %s", path, why))
	}
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
			s.programs[m.id] = s.program(name, m.path)
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
	loads     []elf.Prog64 // its executable parts
	table     *gosym.Table // nil: the program is not written in Go
	functions functions    // from the symbol tables
}

// program reads the file name, which the process calls path. It returns nil if the file cannot be read, or is
// no ELF file of this kind of machine.
func (s *symbols) program(name, path string) *program {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // the path may lead to a pipe by now
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	e, p := object{file: f, room: &s.room}, &program{path: path}
	if !e.open(p) {
		return nil
	}
	text := e.functions(p)
	uid := info.Sys().(*syscall.Stat_t).Uid
	switch at := slices.IndexFunc(e.sections, func(h elf.Section64) bool {
		name := e.name(h.Name)
		return name == ".gopclntab" || name == ".data.rel.ro.gopclntab"
	}); {
	case at < 0:
	case uid != 0 && int(uid) != os.Geteuid(): // package gosym takes any memory for a hostile table
		s.lack(path, "the lines of its Go functions are not read, because the file belongs to another user")
	default:
		// The table of functions that the Go linker writes even into stripped programs.
		p.table, _ = gosym.NewTable(nil, gosym.NewLineTable(e.section(at), text)) // nil if there is an error
	}
	if e.short {
		s.lack(path, fmt.Sprintf("its symbols are not all read, because at most %d MiB of all programs are read", maxBytes>>20))
	}
	return p
}

// An object is an ELF file while it is read. Package elf would read sections of any size.
type object struct {
	file     io.ReaderAt
	room     *uint64
	short    bool // there was no room for a part
	sections []elf.Section64
	names    string // of the sections
}

// read reads a part of the file; nil if it cannot, or if there is no room.
func (e *object) read(at, size uint64) []byte {
	if size > *e.room {
		e.short = true
		return nil
	}
	*e.room -= size
	data := make([]byte, size)
	if n, _ := e.file.ReadAt(data, int64(at)); n < len(data) {
		return nil
	}
	return data
}

// decode reads a part of the file into a value of a fixed size.
func (e *object) decode(at uint64, value any) bool {
	_, err := binary.Decode(e.read(at, uint64(binary.Size(value))), binary.NativeEndian, value)
	return err == nil
}

func (e *object) open(p *program) bool {
	var h elf.Header64
	if !e.decode(0, &h) || string(h.Ident[:4]) != elf.ELFMAG || elf.Class(h.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 {
		return false
	}
	parts := make([]elf.Prog64, h.Phnum)
	if !e.decode(h.Phoff, parts) {
		return false
	}
	for _, part := range parts {
		if elf.ProgType(part.Type) == elf.PT_LOAD && elf.ProgFlag(part.Flags)&elf.PF_X != 0 {
			p.loads = append(p.loads, part)
		}
	}
	if e.sections = make([]elf.Section64, h.Shnum); !e.decode(h.Shoff, e.sections) {
		e.sections = nil // some programs have none
	}
	e.names = string(e.section(int(h.Shstrndx)))
	return true
}

// section returns the bytes of a section; nil if there are none.
func (e *object) section(i int) []byte {
	if i >= len(e.sections) {
		return nil
	}
	h := &e.sections[i]
	if elf.SectionType(h.Type) == elf.SHT_NOBITS || elf.SectionFlag(h.Flags)&elf.SHF_COMPRESSED != 0 {
		return nil
	}
	return e.read(h.Off, h.Size)
}

func (e *object) name(at uint32) string { return stringAt(e.names, at) }

// stringAt returns the string at a place of a table of strings, which it shares.
func stringAt(table string, at uint32) string {
	if uint64(at) >= uint64(len(table)) {
		return ""
	}
	name, _, _ := strings.Cut(table[at:min(len(table), int(at)+maxName)], "\x00")
	return name
}

// functions reads the functions of both symbol tables (a stripped file has only dynamic symbols), and returns
// where Go code begins.
func (e *object) functions(p *program) (text uint64) {
	for i := range e.sections {
		if e.name(e.sections[i].Name) == ".text" {
			text = e.sections[i].Addr
			break
		}
	}
	for i, h := range e.sections {
		if kind := elf.SectionType(h.Type); kind != elf.SHT_SYMTAB && kind != elf.SHT_DYNSYM {
			continue
		}
		names := string(e.section(int(h.Link)))
		if names == "" {
			continue
		}
		for list := e.section(i); len(list) >= elf.Sym64Size; list = list[elf.Sym64Size:] {
			order := binary.NativeEndian
			name, value, size := stringAt(names, order.Uint32(list)), order.Uint64(list[8:]), order.Uint64(list[16:])
			if name == "runtime.text" {
				text = value // in a program with C code, Go code begins later
			}
			if elf.ST_TYPE(list[4]) == elf.STT_FUNC && size > 0 {
				p.functions = append(p.functions, function{value, value + size, name})
			}
		}
	}
	p.functions.sort()
	return text
}

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
