package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"airlift/installer/config"
)

// readConfig fills into from the file of --config, if there is one. The flags
// are bound to fields of into. Flags override the file, and flags that kubeadm
// does not allow together with --config are refused.
func readConfig[T any](cmd *cobra.Command, path string, into *T, read func(path string) (*T, []string, error)) error {
	if path == "" {
		return nil
	}
	var changed []string
	cmd.Flags().Visit(func(f *pflag.Flag) { changed = append(changed, f.Name) })
	if err := config.CheckMixed(changed); err != nil {
		return err
	}
	file, warnings, err := read(path)
	if err != nil {
		return err
	}
	return fillConfig(cmd, into, file, warnings)
}

// fillConfig fills into from a file. The flags, which are bound to fields of into, override it.
func fillConfig[T any](cmd *cobra.Command, into, file *T, warnings []string) (err error) {
	said := map[*pflag.Flag]any{}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			said[f] = list.GetSlice()
		} else {
			said[f] = f.Value.String()
		}
	})
	for _, w := range warnings {
		console(cmd).Warn("%s", w)
	}
	*into = *file
	for f, value := range said {
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values := value.([]string)
			if f.Name == "ignore-preflight-errors" { // both lists apply, as in kubeadm
				values = append(list.GetSlice(), values...)
			}
			err = list.Replace(values)
		} else {
			err = f.Value.Set(value.(string))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
