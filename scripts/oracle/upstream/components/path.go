// Package components lists the upstream components that the test rig builds: their
// versions, their recipes, and the paths of the results in the cache. It builds nothing, so
// a test can import it to find a real kubeadm or containerd.
package components

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// CacheDir returns the rig's cache directory: upstream/ in $AIRLIFT_CACHE, or in airlift/ in the
// user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("AIRLIFT_CACHE"); dir != "" {
		dir, err := filepath.Abs(dir)
		return filepath.Join(dir, "upstream"), err
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the cache directory (set AIRLIFT_CACHE): %w", err)
	}
	return filepath.Join(dir, "airlift", "upstream"), nil
}

// Dir returns the directory in cache for the recipe's binaries.
func (r Recipe) Dir(cache string) string {
	return filepath.Join(cache, "bin", r.Name, r.Key())
}

// Path returns the path of a binary built for a Kubernetes version, for example
// Path("v1.29.15", "kubeadm") or Path("v1.29.15", "ctr"). If it is not built, the error has the
// command that builds it.
func Path(version, name string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	release, err := Find(version)
	if err != nil {
		return "", err
	}
	recipe, err := release.Recipe(name)
	if err != nil {
		return "", err
	}
	path := filepath.Join(recipe.Dir(cache), name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s for %s is not built; run `make upstream`, or `go run ./scripts/oracle/upstream build --version %s --only %s`",
			name, release.Kubernetes, release.Kubernetes, recipe.Name)
	} else if err != nil {
		return "", err
	}
	return path, nil
}

// Recipe returns the recipe for the named binary or component.
func (r Release) Recipe(name string) (Recipe, error) {
	var known []string
	for _, recipe := range slices.Concat(r.Recipes(), r.AddOnRecipes(), r.ConformanceRecipes(), r.TestRecipes()) {
		if recipe.Name == name || slices.Contains(recipe.Binaries(), name) {
			return recipe, nil
		}
		known = append(known, recipe.Name)
	}
	return Recipe{}, fmt.Errorf("unknown component %q; known: %s", name, strings.Join(known, " "))
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
