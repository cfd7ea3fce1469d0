package report

// A RoundFigure is one figure of the rounds of a comparison, which are structs R with a field for each.
type RoundFigure[R any] struct {
	Name string // in JSON
	Of   func(*R) *Number
}

// value returns the figure of a round.
func (f *RoundFigure[R]) value(round *R) Number { return *f.Of(round) }

// SampleOf returns the values of a figure in all rounds.
func SampleOf[R any](rounds []R, figure func(*R) Number) Sample {
	s := make(Sample, len(rounds))
	for i := range rounds {
		s[i] = float64(figure(&rounds[i]))
	}
	return s
}

// Medians returns a round that has the median of each figure.
func Medians[R any](figures []RoundFigure[R], rounds []R) *R {
	medians := new(R)
	for _, f := range figures {
		*f.Of(medians) = Number(SampleOf(rounds, f.value).Median())
	}
	return medians
}

// A FigureRatio is a figure of one contestant divided by the same of another, round by round.
type FigureRatio struct {
	Figure string `json:"figure"`
	Band
}

// FigureRatios are the ratios of several figures.
type FigureRatios []*FigureRatio

// RoundRatios returns the ratios of rounds to base's rounds, for each figure with a known ratio. usable, unless it is
// nil, returns a sample without the values that no ratio can be made of.
func RoundRatios[R any](figures []RoundFigure[R], rounds, base []R, usable func(Sample) Sample) (all FigureRatios) {
	if usable == nil {
		usable = func(s Sample) Sample { return s }
	}
	for _, f := range figures {
		ratios := usable(SampleOf(rounds, f.value)).Over(usable(SampleOf(base, f.value)))
		if m := Number(ratios.Median()); m.Known() {
			low, high := ratios.Stray()
			all = append(all, &FigureRatio{f.Name, Band{Median: m, Low: Number(low), High: Number(high), Values: len(ratios)}})
		}
	}
	return all
}

// Of returns the ratio of a figure, nil if there is none.
func (r FigureRatios) Of(figure string) *Band {
	for _, x := range r {
		if x.Figure == figure {
			return &x.Band
		}
	}
	return nil
}
