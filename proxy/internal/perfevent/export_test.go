package perfevent

// Functions returns the names of functions that are read of a program, and what it lacks.
func Functions(path string) (names, lacking []string) {
	s := symbols{room: maxBytes}
	if p := s.program(path, path); p != nil {
		for _, f := range p.functions {
			names = append(names, f.name)
		}
	}
	return names, s.lacking
}
