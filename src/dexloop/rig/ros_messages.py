"""The message types of ROS 2 that can be imported, for bags that do not carry their definitions.

A definition is the text of the `.msg` file followed by those of the types it uses, as bags store it.
"""

from __future__ import annotations

_RULE = "=" * 80

_TYPES: dict[str, str] = {
    "builtin_interfaces/Time": "int32 sec\nuint32 nanosec",
    "std_msgs/Header": "builtin_interfaces/Time stamp\nstring frame_id",
    "geometry_msgs/Point": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/Vector3": "float64 x\nfloat64 y\nfloat64 z",
    "geometry_msgs/Quaternion": "float64 x 0\nfloat64 y 0\nfloat64 z 0\nfloat64 w 1",
    "geometry_msgs/Pose": "geometry_msgs/Point position\ngeometry_msgs/Quaternion orientation",
    "geometry_msgs/Transform": "geometry_msgs/Vector3 translation\ngeometry_msgs/Quaternion rotation",
    "geometry_msgs/Wrench": "geometry_msgs/Vector3 force\ngeometry_msgs/Vector3 torque",
    "geometry_msgs/PoseStamped": "std_msgs/Header header\ngeometry_msgs/Pose pose",
    "geometry_msgs/WrenchStamped": "std_msgs/Header header\ngeometry_msgs/Wrench wrench",
    "geometry_msgs/TransformStamped": (
        "std_msgs/Header header\nstring child_frame_id\ngeometry_msgs/Transform transform"
    ),
    "tf2_msgs/TFMessage": "geometry_msgs/TransformStamped[] transforms",
    "sensor_msgs/JointState": (
        "std_msgs/Header header\nstring[] name\nfloat64[] position\nfloat64[] velocity\nfloat64[] effort"
    ),
    "sensor_msgs/Image": (
        "std_msgs/Header header\nuint32 height\nuint32 width\nstring encoding\nuint8 is_bigendian\nuint32 step\n"
        "uint8[] data"
    ),
    "sensor_msgs/CompressedImage": "std_msgs/Header header\nstring format\nuint8[] data",
    "sensor_msgs/RegionOfInterest": ("uint32 x_offset\nuint32 y_offset\nuint32 height\nuint32 width\nbool do_rectify"),
    "sensor_msgs/CameraInfo": (
        "std_msgs/Header header\nuint32 height\nuint32 width\nstring distortion_model\nfloat64[] d\nfloat64[9] k\n"
        "float64[9] r\nfloat64[12] p\nuint32 binning_x\nuint32 binning_y\nsensor_msgs/RegionOfInterest roi"
    ),
}

READABLE = (
    "sensor_msgs/JointState",
    "geometry_msgs/PoseStamped",
    "geometry_msgs/TransformStamped",
    "tf2_msgs/TFMessage",
    "geometry_msgs/WrenchStamped",
    "sensor_msgs/Image",
    "sensor_msgs/CompressedImage",
    "sensor_msgs/CameraInfo",
)
"""The types that become streams, videos and cameras."""


def short_name(datatype: str) -> str:
    """Returns "sensor_msgs/Image" of "sensor_msgs/msg/Image"."""
    return datatype.replace("/msg/", "/")


def definition(datatype: str) -> str:
    """Returns the text of a message type of `READABLE` with all types that it uses."""
    used: list[str] = []

    def visit(name: str) -> None:
        for line in _TYPES[name].splitlines():
            inner = line.split()[0].rstrip("]").rpartition("[")[0] or line.split()[0]
            if inner in _TYPES and inner not in used:
                used.append(inner)
                visit(inner)

    name = short_name(datatype)
    visit(name)
    return "\n".join([_TYPES[name], *(f"{_RULE}\nMSG: {inner}\n{_TYPES[inner]}" for inner in used)])
