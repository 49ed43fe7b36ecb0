/* The part of TensorFlow's stable C API (tensorflow/c: kernels.h, ops.h, tf_tensor.h, tf_status.h) that our ops use, declared
 * here so that no TensorFlow is needed to build: these symbols are the same in all versions from 2.16 to 2.21. */
#ifndef TARANTELLA_TENSORFLOW_C_H
#define TARANTELLA_TENSORFLOW_C_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TF_Status TF_Status;
typedef struct TF_Tensor TF_Tensor;
typedef struct TF_OpDefinitionBuilder TF_OpDefinitionBuilder;
typedef struct TF_ShapeInferenceContext TF_ShapeInferenceContext;
typedef struct TF_ShapeHandle TF_ShapeHandle;
typedef struct TF_DimensionHandle TF_DimensionHandle;
typedef struct TF_KernelBuilder TF_KernelBuilder;
typedef struct TF_OpKernelConstruction TF_OpKernelConstruction;
typedef struct TF_OpKernelContext TF_OpKernelContext;

enum { /* TF_DataType */
       TF_FLOAT = 1,
       TF_DOUBLE = 2,
       TF_INT32 = 3,
       TF_UINT8 = 4,
       TF_INT16 = 5,
       TF_INT8 = 6,
       TF_COMPLEX64 = 8,
       TF_INT64 = 9,
       TF_BOOL = 10,
       TF_BFLOAT16 = 14,
       TF_UINT16 = 17,
       TF_COMPLEX128 = 18,
       TF_HALF = 19,
       TF_UINT32 = 22,
       TF_UINT64 = 23
};

enum { TF_OK = 0, TF_INVALID_ARGUMENT = 3, TF_FAILED_PRECONDITION = 9, TF_INTERNAL = 13 };

TF_Status* TF_NewStatus(void);
void TF_DeleteStatus(TF_Status*);
void TF_SetStatus(TF_Status*, int code, const char* message);
int TF_GetCode(const TF_Status*);

void TF_DeleteTensor(TF_Tensor*);
int TF_NumDims(const TF_Tensor*);
int64_t TF_Dim(const TF_Tensor*, int dimension);
void* TF_TensorData(const TF_Tensor*);
int TF_TensorType(const TF_Tensor*);
size_t TF_TensorByteSize(const TF_Tensor*);
int64_t TF_TensorElementCount(const TF_Tensor*);

TF_OpDefinitionBuilder* TF_NewOpDefinitionBuilder(const char* name);
void TF_OpDefinitionBuilderAddAttr(TF_OpDefinitionBuilder*, const char* spec);
void TF_OpDefinitionBuilderAddInput(TF_OpDefinitionBuilder*, const char* spec);
void TF_OpDefinitionBuilderAddOutput(TF_OpDefinitionBuilder*, const char* spec);
void TF_OpDefinitionBuilderSetIsStateful(TF_OpDefinitionBuilder*, bool is_stateful);
void TF_OpDefinitionBuilderSetShapeInferenceFunction(TF_OpDefinitionBuilder*, void (*)(TF_ShapeInferenceContext*, TF_Status*));
void TF_RegisterOpDefinition(TF_OpDefinitionBuilder*, TF_Status*); /* takes the builder */

TF_ShapeHandle* TF_NewShapeHandle(void);
void TF_DeleteShapeHandle(TF_ShapeHandle*);
TF_DimensionHandle* TF_NewDimensionHandle(void);
void TF_DeleteDimensionHandle(TF_DimensionHandle*);
int64_t TF_DimensionHandleValue(TF_DimensionHandle*); /* -1: unknown */
int64_t TF_ShapeInferenceContextNumInputs(TF_ShapeInferenceContext*);
int64_t TF_ShapeInferenceContextRank(TF_ShapeInferenceContext*, TF_ShapeHandle*); /* -1: unknown */
void TF_ShapeInferenceContextDim(TF_ShapeInferenceContext*, TF_ShapeHandle*, int64_t dimension, TF_DimensionHandle*);
void TF_ShapeInferenceContextGetInput(TF_ShapeInferenceContext*, int index, TF_ShapeHandle*, TF_Status*);
void TF_ShapeInferenceContextSetOutput(TF_ShapeInferenceContext*, int index, TF_ShapeHandle*, TF_Status*);
void TF_ShapeInferenceContextSetUnknownShape(TF_ShapeInferenceContext*, TF_Status*); /* of all outputs */

TF_KernelBuilder* TF_NewKernelBuilder(const char* op, const char* device, void* (*create)(TF_OpKernelConstruction*),
                                      void (*compute)(void*, TF_OpKernelContext*), void (*destroy)(void*));
void TF_KernelBuilder_HostMemory(TF_KernelBuilder*, const char* argument);
void TF_RegisterKernelBuilder(const char* kernel, TF_KernelBuilder*, TF_Status*); /* takes the builder */
void TF_OpKernelConstruction_Failure(TF_OpKernelConstruction*, TF_Status*);
void TF_OpKernelConstruction_GetAttrSize(TF_OpKernelConstruction*, const char* name, int32_t* list_size, int32_t* total_size,
                                         TF_Status*);
void TF_OpKernelConstruction_GetAttrInt64(TF_OpKernelConstruction*, const char* name, int64_t* value, TF_Status*);
void TF_OpKernelConstruction_GetAttrString(TF_OpKernelConstruction*, const char* name, char* value, size_t max_length,
                                           TF_Status*); /* without a terminating zero */
void TF_OpKernelConstruction_GetAttrInt64List(TF_OpKernelConstruction*, const char* name, int64_t* values, int max_values,
                                              TF_Status*);

int TF_NumInputs(TF_OpKernelContext*);
int TF_NumOutputs(TF_OpKernelContext*);
void TF_GetInput(TF_OpKernelContext*, int index, TF_Tensor**, TF_Status*);
void TF_SetOutput(TF_OpKernelContext*, int index, const TF_Tensor*, TF_Status*);
TF_Tensor* TF_AllocateOutput(TF_OpKernelContext*, int index, int dtype, const int64_t* dims, int n_dims, size_t bytes,
                             TF_Status*);
TF_Tensor* TF_ForwardInputOrAllocateOutput(TF_OpKernelContext*, const int* candidate_inputs, int n_candidates, int output,
                                           const int64_t* dims, int n_dims, int* forwarded_input, TF_Status*);
void TF_OpKernelContext_Failure(TF_OpKernelContext*, TF_Status*);

#ifdef __cplusplus
}
#endif

#endif /* TARANTELLA_TENSORFLOW_C_H */
