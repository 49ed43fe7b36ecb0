/* Stands for TensorFlow when the op library is linked: it carries TensorFlow's SONAME and the names of the functions we call,
 * so that the op library asks the loader for libtensorflow_framework.so.2, which the user's TensorFlow has loaded by then. It
 * is not installed. TensorFlow 2.16 to 2.19 load the framework privately: without this the names would not be found. */
#define STUB(name) \
  void name(void); \
  void name(void) {}

STUB(TF_NewStatus)
STUB(TF_DeleteStatus)
STUB(TF_SetStatus)
STUB(TF_GetCode)
STUB(TF_Message)
STUB(TF_DeleteTensor)
STUB(TF_NumDims)
STUB(TF_Dim)
STUB(TF_TensorData)
STUB(TF_NewOpDefinitionBuilder)
STUB(TF_OpDefinitionBuilderAddAttr)
STUB(TF_OpDefinitionBuilderAddInput)
STUB(TF_OpDefinitionBuilderAddOutput)
STUB(TF_OpDefinitionBuilderSetIsStateful)
STUB(TF_OpDefinitionBuilderSetShapeInferenceFunction)
STUB(TF_RegisterOpDefinition)
STUB(TF_NewShapeHandle)
STUB(TF_DeleteShapeHandle)
STUB(TF_ShapeInferenceContextNumInputs)
STUB(TF_ShapeInferenceContextGetInput)
STUB(TF_ShapeInferenceContextSetOutput)
STUB(TF_NewKernelBuilder)
STUB(TF_RegisterKernelBuilder)
STUB(TF_OpKernelConstruction_Failure)
STUB(TF_OpKernelConstruction_GetAttrSize)
STUB(TF_OpKernelConstruction_GetAttrInt64)
STUB(TF_OpKernelConstruction_GetAttrInt64List)
STUB(TF_NumInputs)
STUB(TF_GetInput)
STUB(TF_SetOutput)
STUB(TF_ForwardInputOrAllocateOutput)
STUB(TF_OpKernelContext_Failure)
