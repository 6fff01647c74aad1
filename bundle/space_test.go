package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"airlift/bundle/space/spacetest"
	"airlift/fault"
)

// A full file system is named, whether it is full before the parts are
// compressed or when the images, which waited in a file without a name, are to
// follow the rest. Nothing is left.
func TestFullFileSystemIsNamed(t *testing.T) {
	for size, want := range map[int64]string{
		1 << 20: "no space left on device",
		5 << 20: "no space for the images in the bundle",
		8 << 20: "",
	} {
		for _, level := range []Level{Fastest, Best} {
			t.Run(fmt.Sprintf("%d bytes, %v", size, level), func(t *testing.T) {
				dir := spacetest.Small(t, size)
				s := large()
				path := filepath.Join(dir, "install")
				_, err := WriteFile(t.Context(), path, programs(), s.manifest, Options{Level: level}, s.open, nil)
				if want == "" {
					if err != nil {
						t.Error(err)
					}
					return
				}
				if err == nil || !strings.Contains(strings.ToLower(err.Error()), want) || !strings.Contains(err.Error(), "("+dir+", tmpfs)") || fault.Hint(err) == "" {
					t.Errorf("err = %v, hint = %q", err, fault.Hint(err))
				}
				if files, _ := os.ReadDir(dir); len(files) != 0 {
					t.Errorf("left behind: %v", files)
				}
			})
		}
	}
}
