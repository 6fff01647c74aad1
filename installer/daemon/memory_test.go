package daemon

import "testing"

func TestReleaseCode(t *testing.T) {
	if err := releaseCode(); err != nil {
		t.Error(err)
	}
}
