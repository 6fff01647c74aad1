package encoder

// Names lists the names of all encoders.
func Names() (names []string) {
	for _, v := range variants() {
		names = append(names, v.String())
	}
	return names
}
