"""Hadoop's local files without a process for each.

    Spark: offsets, commits, layers ─▶ Hadoop's LocalFileSystem ─▶ a file, and `chmod` twice

* Without its native library, which Spark does not bring along, Hadoop starts a `chmod` for every
  file that it creates, and another one for the layer with checksums on top: more milliseconds than
  the file itself, and Spark waits for them twice in every micro-batch (docs/speed.md).
* What it wants to set is what a new file has anyway: the rights that this process gives by its
  umask.
* So a local file system that leaves rights alone takes the place of Hadoop's, in the cache that all
  of Spark asks.  Should it ever be dropped from there, Hadoop's own is found again.
* It is compiled when a session starts, by the compiler that Spark has for its own generated code.
* Nor are checksum files written: nothing of ours reads them.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

_NAME = "unbroken.PlainFiles"
_TEXT = """
package unbroken;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
public class PlainFiles extends LocalFileSystem {
  public PlainFiles() { super(new Raw()); }
  public void setPermission(Path path, FsPermission permission) {}
  public static class Raw extends RawLocalFileSystem {
    public void setPermission(Path path, FsPermission permission) {}
  }
}
"""


def leave_rights_alone(spark: SparkSession) -> None:
    """Files that this session creates on this machine's disks have the rights that files get."""
    jvm: Any = spark._jvm
    settings = spark._jsc.hadoopConfiguration()
    root = jvm.java.net.URI.create("file:///")
    hadoop = jvm.org.apache.hadoop.fs.FileSystem.get(root, settings).getClass()
    while hadoop.getSimpleName() != "FileSystem":
        hadoop = hadoop.getSuperclass()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(hadoop.getClassLoader())
    compiler.cook(_TEXT)
    made = compiler.getClassLoader().loadClass(_NAME)
    files = made.getDeclaredConstructor(_array(spark)).newInstance(_array(spark, "Object"))
    files.initialize(root, settings)
    files.setWriteChecksum(False)
    # The only way into the cache; a test pins that Spark finds it there.
    kinds = [root.getClass(), settings.getClass(), hadoop]
    put = hadoop.getDeclaredMethod("addFileSystemForTesting", _array(spark, "Class", kinds))
    put.setAccessible(True)
    put.invoke(None, _array(spark, "Object", [root, settings, files]))


def _array(spark: SparkSession, kind: str = "Class", values: Any = ()) -> Any:
    gateway: Any = spark.sparkContext._gateway
    made = gateway.new_array(getattr(gateway.jvm.java.lang, kind), len(values))
    for place, value in enumerate(values):
        made[place] = value
    return made
