package sbom

import (
	"errors"
	"testing"
)

var errDisk = errors.New("broken disk")

type brokenDisk struct{}

func (brokenDisk) ReadAt([]byte, int64) (int, error) { return 0, errDisk }

// An executable that cannot be read is an error, not one without modules.
func TestUnreadExecutable(t *testing.T) {
	if info, err := readBuildInfo(brokenDisk{}); info != nil || !errors.Is(err, errDisk) {
		t.Errorf("%v, %v", info, err)
	}
}
