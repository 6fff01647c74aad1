package charts

import "testing"

// A process that writes more than is kept is not ended by it.
func TestBeginningDropsTheRest(t *testing.T) {
	b := &bounded{left: 4}
	for _, text := range []string{"ab", "cde", "f"} {
		if n, err := b.Write([]byte(text)); n != len(text) || err != nil {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	if b.String() != "abcd" {
		t.Errorf("kept %q", b.String())
	}
}
