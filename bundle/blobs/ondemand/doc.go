// Package ondemand makes the blobs of bundles when they are needed, and keeps them in a directory of bounded size.
// One pass through a bundle serves all blobs that are wanted at that time. Several readers share a blob while it is
// made.
package ondemand
