package arena

// Pages is a kind of memory.
type Pages int

// The kinds, from the best.
const (
	PagesAuto        Pages = iota // the best that there is
	PagesReserved                 // huge pages of 2 MiB that the administrator has set aside (MAP_HUGETLB)
	PagesTransparent              // huge pages that the kernel makes on demand (MADV_HUGEPAGE)
	PagesPlain                    // pages of the machine's ordinary size
)

// String is the kind in words.
func (p Pages) String() string {
	switch p {
	case PagesAuto:
		return "auto"
	case PagesReserved:
		return "reserved huge pages"
	case PagesTransparent:
		return "transparent huge pages"
	case PagesPlain:
		return "plain pages"
	}
	return "unknown pages"
}

// kinds lists the kinds to try for a budget of size bytes. Less than a huge page is not worth
// one: it would make the process larger than its setting.
func (p Pages) kinds(size int64) []Pages {
	switch {
	case p != PagesAuto:
		return []Pages{p}
	case size < hugeSize:
		return []Pages{PagesPlain}
	}
	return []Pages{PagesReserved, PagesTransparent, PagesPlain}
}
